from torchvision import absent

__getattr__ = absent("torchvision.transforms.v2.functional")
