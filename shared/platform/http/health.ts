/** Dependencies that `GET /health` checks with deep=true. The last three only if they are configured. */
export const DEPENDENCIES = [
  "tables",
  "queues",
  "identity",
  "resourceManager",
  "serviceKeyVault",
  "appConfiguration",
  "mail",
] as const;
