/** What `GET /health` asks with deep=true; the last three only where the configuration names them. */
export const DEPENDENCIES = [
  "tables",
  "queues",
  "identity",
  "resourceManager",
  "serviceKeyVault",
  "appConfiguration",
  "mail",
] as const;
