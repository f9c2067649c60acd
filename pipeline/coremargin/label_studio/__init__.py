"""Label Studio for a campaign: questions become tasks, annotations become answers; also an ML backend.

Label Studio documents its formats at labelstud.io/guide (tasks, export, webhook_reference, ml_create). README.md here
says how they were compared with its own packages.
"""
