# docker build -t border_cli .
# docker run --rm -it -v border_outputs:/runs/outputs border_cli agent=dqn env=cartpole
# A smaller image, without CUDA: --build-arg PIP_EXTRA_INDEX_URL=, the index of torch's CPU builds.
FROM python:3.11-slim
ARG PIP_EXTRA_INDEX_URL

WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY border_cli border_cli
COPY conf conf
RUN pip install --no-cache-dir . \
    && useradd --create-home border \
    && install -d -o border /runs /runs/outputs

USER border
WORKDIR /runs
ENTRYPOINT ["border-train"]
