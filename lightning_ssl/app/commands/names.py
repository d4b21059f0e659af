"""The commands of `lightning-ssl` and one line for each. Each is a module here with `main(argv) -> exit code`."""

COMMANDS = {
    "fit": "train one model: `lightning-ssl fit --config quickstart`",
    "evaluate": "train linear classifiers on frozen features: `lightning-ssl evaluate runs/NAME`",
    "plan": "say how many seeds and hours a difference needs: `lightning-ssl plan table1 --difference 1`",
    "sweep": "run a W&B sweep file on this machine: `lightning-ssl sweep quickstart --workers 2`",
    "tune": "compare losses, each with its best setting: `lightning-ssl tune tune_shapes --workers 2`",
    "report": "write a page that compares losses: `lightning-ssl report runs/quickstart --open`",
    "archive": "keep the small files of runs in one file: `lightning-ssl archive runs/NAME --out NAME.jsonl.gz`",
    "reproduce": "repeat a published table and judge its claims: `lightning-ssl reproduce table1 --dry-run`",
    "export": "save the backbone alone, for other code: `lightning-ssl export runs/NAME --format torchvision`",
    "data": "download and list data sets: `lightning-ssl data fetch cifar10`, `lightning-ssl data list`",
    "lab": "run the papers' theory as fast experiments: `lightning-ssl lab list`, `lightning-ssl lab hltm --quick`",
    "list": "list the losses, methods, networks, data sets and sweeps: `lightning-ssl list importances`",
    "bench": "measure speed against its targets: `lightning-ssl bench loss`",
    "dashboard": "make a W&B workspace that compares losses: `lightning-ssl dashboard --entity E --project P`",
    "import-bolts": "convert a lightning-bolts checkpoint: `lightning-ssl import-bolts bolts.ckpt`",
    "completion": 'complete commands and flags with the tab key: `eval "$(lightning-ssl completion bash)"`',
}
