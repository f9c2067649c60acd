"""Label Studio for a campaign: questions as its tasks, its annotations as answers, and its protocol of ML backends.

What it sends and takes is described in its documentation (labelstud.io/guide: tasks, export, webhook_reference,
ml_create); shapes are held against its own packages in README.md here.
"""
