"""Results as pages to read: plain data in, text out."""
