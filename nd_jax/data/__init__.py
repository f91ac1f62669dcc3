"""Token rows and global batches."""
