import { parseResourceId } from "../../platform/azure/resource-id.ts";

/** A kind of database server whose logins are rotated. */
export interface DatabaseEngine {
  /** Name of the kind in the API and in rows. */
  name: string;
  /** Name of the kind for people. */
  title: string;
  /** Type of the Azure resource. */
  type: string;
  apiVersion: string;
  port: number;
  /** Actions that the service's identity needs in Azure. */
  actions: readonly string[];
  documentation: string;
}

/** All kinds, in the order of the API. */
export const ENGINES = [
  {
    name: "postgresqlLogin",
    title: "PostgreSQL login",
    type: "Microsoft.DBforPostgreSQL/flexibleServers",
    apiVersion: "2024-08-01",
    port: 5432,
    actions: ["Microsoft.DBforPostgreSQL/flexibleServers/read"],
    documentation: "https://learn.microsoft.com/azure/postgresql/flexible-server/security-entra-configure",
  },
] as const satisfies readonly DatabaseEngine[];

/** Tags of a vault secret that stores a login. They prove nothing: a rotation reads the value. */
export const USER_TAG = "database-user";
export const SERVER_TAG = "database-server";

/** Returns the name of the kind of a server. @throws {Error} for another resource, which is a programming error. */
export function engineOfServer(serverId: string): string {
  const engine = engineOfType(parseResourceId(serverId)?.type ?? "");
  if (engine === undefined) throw new Error("The resource is no database server.");
  return engine.name;
}

/** Returns the kind of a server by its resource type, in any case. */
export const engineOfType = (type: string): DatabaseEngine | undefined =>
  ENGINES.find((engine) => engine.type.toLowerCase() === type.toLowerCase());
