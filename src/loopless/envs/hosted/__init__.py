"""Any Gymnasium environment, stepped on the host. `envs.HostedEnvs` is what others use."""
