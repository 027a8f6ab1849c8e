"""A search for hyperparameters: trials, each trained with several seeds and pruned as it goes."""
