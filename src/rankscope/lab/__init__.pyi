from .experiments.catalogue import EXPERIMENTS as EXPERIMENTS
from .experiments.catalogue import TOPICS as TOPICS
from .experiments.catalogue import find_experiment as find_experiment
from .experiments.catalogue import find_topic as find_topic
from .experiments.experiment import Entry as Entry
from .experiments.experiment import Experiment as Experiment
