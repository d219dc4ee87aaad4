"""What a model's configuration and weights say about it: findings with numbers and commands.

Names are imported when they are first used; `__init__.pyi` lists them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
