import * as z from "zod";
import type { Arm, ListResult } from "./arm.ts";
import { nameWithoutParents, resourceName, resourcePath } from "./resource-id.ts";
import { DEPENDENCY_READER } from "./watch-roles.ts";

/** A secret of a Front Door profile, such as a certificate that comes from a key vault. */
export interface FrontDoorSecret {
  name: string;
  /** `CustomerCertificate`, `ManagedCertificate` … */
  type: string;
  /** Resource ID of the key vault secret. Undefined if the secret comes from no key vault. */
  secretSource?: string;
  secretVersion?: string;
  /** True if the profile uses the newest version. */
  useLatestVersion: boolean;
}

/**
 * Reads Front Door profiles. Every method throws `CloudFailure`.
 * https://learn.microsoft.com/rest/api/frontdoor/azurefrontdoorstandardpremium/secrets
 */
export interface FrontDoor {
  secrets(profileId: string, signal?: AbortSignal): Promise<ListResult<FrontDoorSecret>>;
}

const secret = z.object({
  name: z.string(),
  properties: z.object({
    parameters: z.object({
      type: z.string(),
      secretSource: z.object({ id: z.string().nullish() }).nullish(),
      secretVersion: z.string().nullish(),
      useLatestVersion: z.boolean().nullish(),
    }),
  }),
});

export function createFrontDoor(arm: Arm): FrontDoor {
  return {
    async secrets(profileId, signal) {
      const { entries, unreadable } = await arm.list(
        {
          path: `${resourcePath(profileId, "microsoft.cdn/profiles")}/secrets`,
          apiVersion: "2024-02-01",
          target: {
            operation: "list the secrets",
            resource: `Front Door ${resourceName(profileId)}`,
            grant: DEPENDENCY_READER,
          },
          signal,
        },
        secret,
      );
      return {
        entries: entries.map(({ name, properties: { parameters } }) => ({
          name: nameWithoutParents(name),
          type: parameters.type,
          ...(parameters.secretSource?.id && { secretSource: parameters.secretSource.id }),
          ...(parameters.secretVersion && { secretVersion: parameters.secretVersion }),
          useLatestVersion: parameters.useLatestVersion ?? false,
        })),
        unreadable,
      };
    },
  };
}
