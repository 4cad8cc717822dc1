"What configs and modules are draws of."
