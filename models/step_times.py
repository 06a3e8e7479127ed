"""Where step times come from: the roofline, a table of measured steps, or measured operators."""

from models.operator_tables import OperatorTables
from models.roofline import StepCost
from models.step_table import StepTable

StepTimes = StepCost | StepTable | OperatorTables
