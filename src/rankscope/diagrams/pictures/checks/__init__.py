"""What can be wrong with a picture: one file for each kind of thing that is drawn."""
