import { expect, test } from "vitest";
import { compareWithProvider } from "../terraform/provider-schema.ts";

// Tests the comparison of azurerm.json with the provider's schema, in the form of `terraform providers schema -json`.

const provider = (block: object) => ({
  provider_schemas: {
    "registry.terraform.io/hashicorp/azurerm": { resource_schemas: { azurerm_subnet: { block } } },
  },
});
const BLOCK = {
  attributes: {
    id: { type: "string" },
    name: { type: "string", required: true },
    prefixes: { type: ["set", "string"] },
  },
  block_types: { delegation: { min_items: 1, block: { attributes: { actions: { type: ["list", "string"] } } } } },
} as const;
const SUBNET = {
  arguments: {
    name: { required: true, type: "string" },
    prefixes: { type: "list" },
    delegation: { required: true, block: { actions: { type: "list" } } },
  },
  attributes: ["id"],
};
const messagesOf = (subnet: Partial<typeof SUBNET>, block: object = BLOCK) =>
  compareWithProvider({ azurerm_subnet: { ...SUBNET, ...subnet } }, provider(block)).map(({ message }) => message);

test("an excerpt that agrees with the provider has no finding", () => {
  expect(messagesOf({})).toEqual([]);
});

test("an excerpt that differs from the provider has a finding for each difference", () => {
  const { name, delegation } = SUBNET.arguments;
  const differing = {
    arguments: {
      name: { type: "bool" },
      prefix: { type: "list" },
      delegation: { ...delegation, block: { actions: { type: "list" }, name } },
    },
    attributes: ["id", "guid"],
  };
  expect(messagesOf(differing as unknown as typeof SUBNET)).toEqual([
    "the provider's azurerm_subnet.name is string, not bool",
    "the provider's azurerm_subnet.name is required",
    "the provider's azurerm_subnet has no argument prefix",
    "the provider's azurerm_subnet.delegation has no argument name",
    "the provider's azurerm_subnet has no attribute guid",
  ]);
  expect(messagesOf({ arguments: {} } as Partial<typeof SUBNET>)).toEqual([
    "the provider's azurerm_subnet needs name",
    "the provider's azurerm_subnet needs delegation",
  ]);
  expect(compareWithProvider({ azurerm_other: SUBNET }, provider(BLOCK))).toMatchObject([
    { message: "the provider has no resource azurerm_other" },
  ]);
});
