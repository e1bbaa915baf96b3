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

/** Returns the kind of a server. Undefined for another resource. */
export function findEngine(serverId: string): DatabaseEngine | undefined {
  const type = parseResourceId(serverId)?.type.toLowerCase();
  return ENGINES.find((engine) => engine.type.toLowerCase() === type);
}

/** Returns the kind of a server. @throws {TypeError} for another resource, which is a programming error. */
export function engineOfServer(serverId: string): DatabaseEngine {
  const engine = findEngine(serverId);
  if (engine === undefined) throw new TypeError("Not the resource ID of a database server.");
  return engine;
}
