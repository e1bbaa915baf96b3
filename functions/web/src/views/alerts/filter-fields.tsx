import { Fragment, type ReactNode } from "react";
import type { Schemas } from "../../api/client.ts";
import { ChoiceField, TextField } from "../../parts/fields.tsx";
import { fieldChoice, fieldText, withoutEmpty } from "../../parts/form-dialog.tsx";

type Filters = Schemas["AlertRuleFilters"];

/** Options of the fields. The empty key stands for no filter. */
const TYPES = { "": "Any", secret: "Secrets", key: "Keys", certificate: "Certificates" } as const;
const SOURCES = { "": "Any", keyVault: "Key vaults", entra: "Entra applications", b2c: "B2C tenants" } as const;
const SEVERITIES = {
  "": "Any",
  low: "Low or higher",
  medium: "Medium or higher",
  high: "High or higher",
  critical: "Critical",
} as const;

/**
 * The filter fields in the forms of rules and snoozes. An empty filter matches everything.
 *
 * @param props.of - Names of the fields to show. They depend on the event of the rule.
 */
export function FilterFields({ filters = {}, of }: { filters?: Filters; of: readonly (keyof Filters)[] }) {
  const { vault = "", type = "", subscription = "", source = "", tag = "", owner = "", severity = "" } = filters;
  const fields: Record<keyof Filters, ReactNode> = {
    vault: (
      <TextField
        name="vault"
        member="filters.vault"
        label="Vault"
        hint="Full vault name. Example: kv-billing-prod"
        defaultValue={vault}
      />
    ),
    type: <ChoiceField name="type" member="filters.type" label="Asset type" options={TYPES} defaultValue={type} />,
    subscription: (
      <TextField
        name="subscription"
        member="filters.subscription"
        label="Subscription ID"
        hint="Example: 8eab9bca-7137-4f76-a31c-dcc4acd2ff43"
        defaultValue={subscription}
      />
    ),
    source: (
      <ChoiceField name="source" member="filters.source" label="Source" options={SOURCES} defaultValue={source} />
    ),
    tag: (
      <TextField
        name="tag"
        member="filters.tag"
        label="Tag"
        hint="A tag name, or a name and a value. Examples: environment, environment=prod"
        defaultValue={tag}
      />
    ),
    owner: (
      <TextField
        name="owner"
        member="filters.owner"
        label="Owner"
        hint="Value of the asset's owner tag. Example: payments"
        defaultValue={owner}
      />
    ),
    severity: (
      <ChoiceField
        name="severity"
        member="filters.severity"
        label="Minimum severity"
        options={SEVERITIES}
        defaultValue={severity}
      />
    ),
  };
  return of.map((name) => <Fragment key={name}>{fields[name]}</Fragment>);
}

/** Returns the filters from the form data, without empty ones. In a choice, the empty text means any value: no filter. */
export function filtersOf(form: FormData): Filters {
  return withoutEmpty({
    vault: fieldText(form, "vault"),
    type: fieldChoice(form, "type", ["", "secret", "key", "certificate"]) || null,
    subscription: fieldText(form, "subscription"),
    source: fieldChoice(form, "source", ["", "keyVault", "entra", "b2c"]) || null,
    tag: fieldText(form, "tag"),
    owner: fieldText(form, "owner"),
    severity: fieldChoice(form, "severity", ["", "low", "medium", "high", "critical"]) || null,
  });
}
