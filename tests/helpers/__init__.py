"""What several test modules share; the oracles are in tests/oracles.py."""

from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent


def small_fit(model, train_images=96, test_images=32, batch_size=16):
    """Flags of `lightning-ssl fit` for a short training on the CPU: six steps an epoch."""
    return [
        f"--model={model}", "--model.backbone=resnet_tiny", "--trainer.accelerator=cpu",
        "--trainer.enable_progress_bar=false", f"--data.batch_size={batch_size}",
        f"--data.options={{train_images: {train_images}, test_images: {test_images}}}",
    ]  # fmt: skip
