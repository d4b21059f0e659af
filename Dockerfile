# The suite with the pinned packages that the tests use.
#
#   docker build -t lightning-ssl .
#   docker run --rm -v "$PWD/runs:/app/runs" -v "$PWD/data:/app/data" lightning-ssl fit --config configs/quickstart.yaml
#
# On GPUs add `--gpus all --ipc=host`. pip installs the CUDA build of torch if the package index has it.
FROM python:3.11-slim

RUN apt-get update \
    && apt-get install -y --no-install-recommends git npm \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /app
COPY requirements.txt pyproject.toml README.md LICENSE ./
RUN pip install --no-cache-dir -r requirements.txt

COPY lightning_ssl lightning_ssl
COPY configs configs
COPY sweeps sweeps
COPY benchmarks benchmarks
RUN pip install --no-cache-dir --no-deps -e . && python -c "from lightning_ssl import _torchvision_guard as guard; guard.write_pth()"

ENTRYPOINT ["lightning-ssl"]
CMD ["--help"]
