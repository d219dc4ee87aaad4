from .numpy_files import NumpyArchive as NumpyArchive
from .numpy_files import NumpyFile as NumpyFile
from .opening import open_tensors as open_tensors
from .safetensors_file import SafetensorsFile as SafetensorsFile
from .sources import TensorEntry as TensorEntry
from .sources import TensorSource as TensorSource
from .torch_file import TorchFile as TorchFile
