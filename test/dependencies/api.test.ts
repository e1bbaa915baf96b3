import { expect, test } from "vitest";
import { filterOf } from "../../shared/dependencies/api.ts";

const TENANT = "6a0c3f5e-0000-4000-8000-000000000001";
const APP = "6a0c3f5e-0000-4000-8000-000000000002";
const KEY_ID = "6a0c3f5e-0000-4000-8000-000000000003";

// Tests of the filters of the list of dependencies.

test.each([
  ["kv-shop.secret.db", { vaultName: "kv-shop", type: "secret", name: "db" }],
  ["KV-Shop.Secret.DB", { vaultName: "kv-shop", type: "secret", name: "db" }],
  // Dependencies of an application's credential are stored for the application, without the key id.
  [`entra.${TENANT}.${APP}.${KEY_ID}`, { vaultName: `entra.${TENANT}`, type: "secret", name: APP }],
  [`ENTRA.${TENANT}.${APP}.${KEY_ID}`.toUpperCase(), { vaultName: `entra.${TENANT}`, type: "secret", name: APP }],
  // A vault may have the name `entra`. Only ids with three GUIDs are those of applications.
  [`entra.secret.${APP}-${KEY_ID}`, { vaultName: "entra", type: "secret", name: `${APP}-${KEY_ID}` }],
])("the filter by asset id %s selects the dependencies of that asset", (assetId, asset) => {
  expect(filterOf({ assetId, pinned: true })).toEqual({ pinned: true, asset });
});

test("a filter by an invalid asset id is rejected", () => {
  for (const assetId of ["x", "kv-shop.secret", "kv-shop.secret.a/b", `entra.${TENANT}.${APP}`])
    expect(() => filterOf({ assetId })).toThrow("An asset's id is");
});
