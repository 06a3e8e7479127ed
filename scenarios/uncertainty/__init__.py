"""How sure a prediction is: a scenario run with parameters drawn from what is known of them."""

from scenarios.uncertainty.predicting import Prediction, predict

__all__ = ["Prediction", "predict"]
