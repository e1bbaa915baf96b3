import type { Schemas } from "../api/client.ts";
import { isolated } from "./isolated.ts";

/**
 * Returns the display name of an asset. The name of an Entra credential consists of ids, so its application's name and its
 * display name are used instead.
 */
export const assetName = ({ name, credential }: Pick<Schemas["Asset"], "name" | "credential">): string =>
  [credential?.applicationName, credential?.displayName]
    .flatMap((part) => part || [])
    .map(isolated)
    .join(": ") || name;

/** Returns what holds an asset: its vault, or the tenant of a credential, which is in no vault. */
export const assetHolder = ({ vaultName, credential }: Pick<Schemas["Asset"], "vaultName" | "credential">): string =>
  vaultName ?? credential?.tenantDomain ?? "Entra application";
