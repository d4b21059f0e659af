"""The run folder: reading of any content, values of metrics, checkpoints with damage."""

import zipfile

import pytest

from lightning_ssl.runs.checkpoints import damage
from lightning_ssl.runs.folder import RunFolder


@pytest.mark.parametrize(
    "text",
    ["a: &x {b: *x}", "a: !!timestamp x", 'a: !!int ""', "a: !!bool x", "[1", "- " * 5000 + "x", "just words", ""],
)
def test_any_config_yaml_can_be_read(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    assert isinstance(RunFolder(tmp_path).config(), dict)


@pytest.mark.parametrize("text", ["[1]", "{", '{"last": 3}', '{"last": {"x": ' + "9" * 400 + "}}", ""])
def test_any_summary_json_can_be_read(tmp_path, text):
    (tmp_path / "summary.json").write_text(text)
    run = RunFolder(tmp_path)
    assert isinstance(run.summary(), dict)
    assert run.last_value("x") is None


def test_the_last_value_comes_from_metrics_csv_and_then_from_the_summary(tmp_path):
    run = RunFolder(tmp_path)
    run.update_summary(last={"x": 0.4, "y": 1})
    (tmp_path / "metrics.csv").write_text("epoch,step,x\n0,0,0.4\n0,1,0.5\n")
    assert (run.last_value("x"), run.last_value("y"), run.last_value("z")) == (0.5, 1.0, None)
    assert run.logged_metrics() == ["x", "y"]


def test_a_value_that_is_not_finite_is_no_last_value(tmp_path):
    (tmp_path / "metrics.csv").write_text("epoch,step,x\n0,0,0.4\n0,1,nan\n")
    assert RunFolder(tmp_path).last_value("x") is None
    assert RunFolder(tmp_path).history("x") == [0.4]


def test_damage_anywhere_in_a_checkpoint_is_found(tmp_path):
    file = tmp_path / "a.ckpt"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data.pkl", b"weights" * 10)
    whole = file.read_bytes()
    assert damage(file) is None
    for place in range(0, len(whole), 3):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        found = damage(file)  # it never raises
        assert found is None or found
    file.write_bytes(whole[: len(whole) // 2])
    assert damage(file)
