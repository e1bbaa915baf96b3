import * as z from "zod";
import type { Arm } from "../../platform/azure/arm.ts";
import { createResourceGraph, SUBSCRIPTIONS_IN_QUERY, toQueryLiteral } from "../../platform/azure/resource-graph.ts";
import { type DatabaseEngine, ENGINES, findEngine } from "./engines.ts";

/** A database server whose logins can be registered. */
export interface DatabaseServer {
  serverId: string;
  name: string;
  engine: DatabaseEngine;
}

const row = z.object({ id: z.string(), name: z.string() });
const TYPES = ENGINES.map(({ type }) => toQueryLiteral(type)).join(",");

/**
 * Returns the database servers of all kinds that the service's identity can read, by name. Azure Resource Graph lists them, some
 * minutes after their creation.
 *
 * @param subscriptions - Monitored subscriptions.
 * @throws {CloudFailure}
 */
export async function listServers(arm: Arm, subscriptions: readonly string[]): Promise<DatabaseServer[]> {
  const graph = createResourceGraph(arm);
  const servers: DatabaseServer[] = [];
  for (let start = 0; start < subscriptions.length; start += SUBSCRIPTIONS_IN_QUERY) {
    const slice = subscriptions.slice(start, start + SUBSCRIPTIONS_IN_QUERY);
    for await (const rows of graph.query(`resources | where type in~ (${TYPES}) | project id,name`, slice))
      for (const { success, data } of rows.map((one) => row.safeParse(one))) {
        const engine = success ? findEngine(data.id) : undefined;
        if (success && engine !== undefined) servers.push({ serverId: data.id, name: data.name, engine });
      }
  }
  return servers.sort((a, b) => (`${a.name}\n${a.serverId}` < `${b.name}\n${b.serverId}` ? -1 : 1));
}
