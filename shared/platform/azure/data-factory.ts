import * as z from "zod";
import type { Arm, ListResult } from "./arm.ts";
import { nameWithoutParents, resourceName, resourcePath } from "./resource-id.ts";
import { DEPENDENCY_READER } from "./watch-roles.ts";

/** A connection of a data factory to another system. Its properties contain no plaintext secrets. */
export interface LinkedService {
  name: string;
  /** Kind of the other system, such as `AzureKeyVault`. */
  type: string;
  /** The properties of the answer. Values can be expressions. */
  typeProperties: Record<string, unknown>;
}

/** Reads data factories. Every method throws `CloudFailure`. https://learn.microsoft.com/rest/api/datafactory/linked-services */
export interface DataFactory {
  linkedServices(factoryId: string, signal?: AbortSignal): Promise<ListResult<LinkedService>>;
}

const linkedService = z.object({
  name: z.string(),
  properties: z.object({ type: z.string(), typeProperties: z.record(z.string(), z.unknown()).nullish() }),
});

export function createDataFactory(arm: Arm): DataFactory {
  return {
    async linkedServices(factoryId, signal) {
      const { entries, unreadable } = await arm.list(
        {
          path: `${resourcePath(factoryId, "microsoft.datafactory/factories")}/linkedservices`,
          apiVersion: "2018-06-01",
          target: {
            operation: "list the linked services",
            resource: `data factory ${resourceName(factoryId)}`,
            grant: DEPENDENCY_READER,
          },
          signal,
        },
        linkedService,
      );
      return {
        entries: entries.map(({ name, properties: { type, typeProperties } }) => ({
          name: nameWithoutParents(name),
          type,
          typeProperties: typeProperties ?? {},
        })),
        unreadable,
      };
    },
  };
}
