/** The last three are asked only where the configuration names them. */
export const DEPENDENCIES = [
  "tables",
  "queues",
  "identity",
  "resourceManager",
  "serviceKeyVault",
  "appConfiguration",
  "mail",
] as const;
