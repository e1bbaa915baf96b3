export * from "../../infra/local/azurite.ts";
