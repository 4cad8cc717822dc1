"""Configs and modules of Hugging Face's transformers, read and written."""
