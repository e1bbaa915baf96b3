import { expect, test } from "vitest";
import { filterOf } from "../../shared/dependencies/api.ts";

const TENANT = "6a0c3f5e-0000-4000-8000-000000000001";
const APP = "6a0c3f5e-0000-4000-8000-000000000002";
const KEY = "6a0c3f5e-0000-4000-8000-000000000003";

test.each([
  ["kv-shop.secret.db", { vaultName: "kv-shop", type: "secret", name: "db" }],
  ["KV-Shop.Secret.DB", { vaultName: "kv-shop", type: "secret", name: "db" }],
  // Consumers of an application reference none of its secrets.
  [`entra.${TENANT}.${APP}.${KEY}`, { vaultName: `entra.${TENANT}`, type: "secret", name: APP }],
  [`ENTRA.${TENANT}.${APP}.${KEY}`.toUpperCase(), { vaultName: `entra.${TENANT}`, type: "secret", name: APP }],
  // A vault may be called so.
  [`entra.secret.${APP}-${KEY}`, { vaultName: "entra", type: "secret", name: `${APP}-${KEY}` }],
])("edges of %s are looked for where they stand", (assetId, place) => {
  expect(filterOf({ assetId, pinned: true })).toEqual({ pinned: true, place });
});

test("what can't be an asset's id is refused", () => {
  for (const assetId of ["x", "kv-shop.secret", "kv-shop.secret.a/b", `entra.${TENANT}.${APP}`])
    expect(() => filterOf({ assetId })).toThrow("An asset's id is");
});
