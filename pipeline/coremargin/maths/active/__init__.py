"""Learning from few labels: centres of the version space, cutting planes, slabs, streams, and the published bounds."""
