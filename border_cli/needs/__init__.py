"""What a run will need of memory and disk, and its refusal where that is not there."""
