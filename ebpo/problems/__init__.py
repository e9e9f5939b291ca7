"""Problems: the record, the sources, and the sets that an experiment is made of."""
