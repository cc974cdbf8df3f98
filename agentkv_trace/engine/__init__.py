"""Miss-ratio engines: numpy arrays in, numpy arrays out."""
