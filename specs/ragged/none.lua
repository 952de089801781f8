-- All groups have the same sizes: a uniform batch.

ragged "none" {}
