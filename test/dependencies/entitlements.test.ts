import { expect, test } from "vitest";
import { readEntitlements } from "../../shared/dependencies/azure/entitlements.ts";

// An entitlement is the permission of a principal to read values of a vault, by role or access policy. These tests are about
// roles: which of the secrets of a vault a role assignment lets its principal read.

const SUBSCRIPTION = "5f0c3f5e-0000-4000-8000-000000000001";
const PERSON = "00000000-0000-4000-8000-000000000001";
const vaultId = (name: string) =>
  `/subscriptions/${SUBSCRIPTION}/resourceGroups/rg/providers/Microsoft.KeyVault/vaults/${name}`;

/**
 * Returns the assets that a role assignment at `scope` lets a person read, and how often the role's permissions were read.
 *
 * @param dataActions - Data actions of the assigned role. They can contain `*`.
 */
async function readAssetsOf(
  dataActions: string[],
  { scope = `/subscriptions/${SUBSCRIPTION}`, vaults = ["kv-1"] } = {},
) {
  let definitionReads = 0;
  const { principals } = await readEntitlements(
    SUBSCRIPTION,
    vaults.map((name) => ({ id: vaultId(name), properties: { enableRbacAuthorization: true } })),
    {
      roles: {
        list: async () => ({ entries: [{ principalId: PERSON, roleDefinitionId: "/role", scope }], unreadable: [] }),
        definition: async () => Promise.reject(new Error("Role definitions are read by `definitions` below.")),
      },
      definitions: async () => {
        definitionReads++;
        return { name: "Role", permissions: [{ actions: [], notActions: [], dataActions, notDataActions: [] }] };
      },
    },
  );
  return { assets: principals.get(PERSON)?.assets.map(({ asset }) => asset) ?? [], definitionReads };
}

test.each([
  ["Microsoft.KeyVault/vaults/secrets/getSecret/action", true],
  ["*", true],
  ["Microsoft.KeyVault/vaults/secrets/*", true],
  ["*/action", true],
  ["microsoft.keyvault/*/getsecret/*", true],
  ["microsoft.keyvault/**secret**/action", true],
  ["Microsoft.KeyVault/vaults/secrets/readMetadata/action", false],
  ["Microsoft.KeyVault/vaults/secrets/getSecret", false],
  ["microsoft.keyvault/vaults/secrets/getsecret/action*/action", false],
  ["microsoftxkeyvault/*", false],
  [`${"*".repeat(40)}z`, false],
  [`${"*e*t".repeat(20)}*`, false],
])("whether a role with the data action %s may read secrets: %s", async (pattern, reads) => {
  const { assets } = await readAssetsOf([pattern]);
  // An asset without a type is the whole vault, with its secrets.
  expect(assets.some(({ type }) => type === undefined || type === "secret")).toBe(reads);
});

test("the permissions of a role are read once for all vaults of an assignment", async () => {
  const vaults = Array.from({ length: 50 }, (_, index) => `kv-${index}`);
  const everywhere = await readAssetsOf(["*"], { vaults });
  expect(everywhere.assets).toHaveLength(50);
  expect(everywhere.definitionReads).toBe(1);
});

test("an assignment at a secret covers only that secret, one at another resource group none, and one at the root all", async () => {
  const vaults = ["kv-1", "kv-11"];
  const one = await readAssetsOf(["*"], { scope: `${vaultId("kv-1")}/secrets/db`, vaults });
  expect(one.assets).toEqual([{ vaultName: "kv-1", type: "secret", name: "db" }]);
  expect(await readAssetsOf(["*"], { scope: `/subscriptions/${SUBSCRIPTION}/resourceGroups/r`, vaults })).toEqual({
    assets: [],
    definitionReads: 0,
  });
  expect((await readAssetsOf(["*"], { scope: "/", vaults })).assets).toHaveLength(2);
});
