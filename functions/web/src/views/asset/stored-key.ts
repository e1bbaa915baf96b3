import { api, type Schemas } from "../../api/client.ts";

/** Matches the ID of a secret in a vault. */
const VAULT_SECRET_ID = /^[^.]+\.secret\./;

/**
 * Returns the pair of keys of an Azure resource whose key a vault secret stores, as the last discovery found it, with the
 * rotation in progress. Needs a license. All components of the page share the responses.
 *
 * After a failed request, the asset counts as one that stores no key. The page then offers the rotation of a vault secret: the
 * API rotates the key instead if the request contains no value.
 */
export function useStoredKey(assetId: string): {
  /** Undefined if the asset stores no key, and until that is known. */
  credential: Schemas["RotationCredentialDetail"] | undefined;
  isPending: boolean;
} {
  const list = api.useQuery(
    "get",
    "/api/automation/rotation/credentials",
    { params: { query: { assetId, limit: 1 } } },
    { enabled: VAULT_SECRET_ID.test(assetId) },
  );
  const credentialId = list.data?.items[0]?.credentialId;
  const details = api.useQuery(
    "get",
    "/api/automation/rotation/credentials/{credential_id}",
    { params: { path: { credential_id: credentialId ?? "" } } },
    { enabled: credentialId !== undefined },
  );
  return { credential: details.data, isPending: list.isLoading || details.isLoading };
}
