import { expect, test } from "vitest";
import { readEntitlements } from "../../shared/dependencies/azure/entitlements.ts";

const UNIT = "5f0c3f5e-0000-4000-8000-000000000001";
const PERSON = "00000000-0000-4000-8000-000000000001";
const vaultId = (name: string) =>
  `/subscriptions/${UNIT}/resourceGroups/rg/providers/Microsoft.KeyVault/vaults/${name}`;

async function entitled(dataActions: string[], { scope = `/subscriptions/${UNIT}`, vaults = ["kv-1"] } = {}) {
  let asked = 0;
  const { principals } = await readEntitlements(
    UNIT,
    vaults.map((name) => ({ id: vaultId(name), properties: { enableRbacAuthorization: true } })),
    {
      roles: {
        list: async () => ({ entries: [{ principalId: PERSON, roleDefinitionId: "/role", scope }], unreadable: [] }),
        definition: async () => Promise.reject(new Error("not asked here")),
      },
      definitions: async () => {
        asked++;
        return { name: "Role", permissions: [{ actions: [], notActions: [], dataActions, notDataActions: [] }] };
      },
    },
  );
  return { assets: principals.get(PERSON)?.assets.map(({ asset }) => asset) ?? [], asked };
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
])("a role with the data action %s reads secrets: %s", async (pattern, reads) => {
  const { assets } = await entitled([pattern]);
  expect(assets.some(({ type }) => type === undefined || type === "secret")).toBe(reads);
});

test("the permissions of a role are read once for all vaults of an assignment", async () => {
  const vaults = Array.from({ length: 50 }, (_, at) => `kv-${at}`);
  const everywhere = await entitled(["*"], { vaults });
  expect(everywhere.assets).toHaveLength(50);
  expect(everywhere.asked).toBe(1);
});

test("at a secret's own scope it is that secret alone; elsewhere none, and the role is not read", async () => {
  const vaults = ["kv-1", "kv-11"];
  const one = await entitled(["*"], { scope: `${vaultId("kv-1")}/secrets/db`, vaults });
  expect(one.assets).toEqual([{ vaultName: "kv-1", type: "secret", name: "db" }]);
  expect(await entitled(["*"], { scope: `/subscriptions/${UNIT}/resourceGroups/r`, vaults })).toEqual({
    assets: [],
    asked: 0,
  });
  expect((await entitled(["*"], { scope: "/", vaults })).assets).toHaveLength(2);
});
