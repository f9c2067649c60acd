"""Files of predictions: one module per format; ``opening.predictions`` finds it by the name of the output."""
