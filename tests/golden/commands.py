"""Command lines that ran with version 9187a09; the tests resume what they left in data/."""

TINY = [
    "--model.backbone=golden.network.Tiny",
    "--model.projector={hidden: 8, out: 8}",
    "--model.augment=paper_cifar",
    "--data.options={size: 16, train_images: 64, test_images: 32}",
    "--data.batch_size=16",
    "--trainer.accelerator=cpu",
    "--trainer.enable_progress_bar=false",
    "--trainer.log_every_n_steps=1",
    "--knn.k=5",
]
# Stopped by SIGTERM after its first checkpoint. Its class has the path of older configurations.
HALFWAY = [
    "--model=lightning_ssl.methods.contrastive.AlphaCL", "--model.importance=Tsallis", "--model.importance.q=1.5",
    *TINY, "--name=halfway", "--trainer.max_epochs=12", "--trainer.precision=64-true", "--checkpoint.every_n_epochs=2",
]  # fmt: skip
EVALUATE = ["--protocol=both", "--seeds=2", "--device=cpu"]
