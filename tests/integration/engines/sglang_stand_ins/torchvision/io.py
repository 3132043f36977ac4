from torchvision import absent

__getattr__ = absent("torchvision.io")
