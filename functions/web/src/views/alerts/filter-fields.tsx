import { Fragment, type ReactNode } from "react";
import type { Schemas } from "../../api/client.ts";
import { ChoiceField, TextField } from "../../parts/fields.tsx";
import { chosen, given, typed } from "../../parts/form-dialog.tsx";

type Filters = Schemas["AlertRuleFilters"];

const TYPES = { "": "Any", secret: "Secrets", key: "Keys", certificate: "Certificates" } as const;
const SOURCES = { "": "Any", keyVault: "Key vaults", entra: "Entra applications", b2c: "B2C tenants" } as const;
const SEVERITIES = {
  "": "Any",
  low: "Low or higher",
  medium: "Medium or higher",
  high: "High or higher",
  critical: "Critical",
} as const;

/** The filter fields of a rule or snooze, those that `of` names. An empty filter matches everything. */
export function FilterFields({ filters = {}, of }: { filters?: Filters; of: readonly (keyof Filters)[] }) {
  const { vault = "", type = "", subscription = "", source = "", tag = "", owner = "", severity = "" } = filters;
  const fields: Record<keyof Filters, ReactNode> = {
    vault: <TextField name="vault" member="filters.vault" label="Vault" defaultValue={vault} />,
    type: <ChoiceField name="type" member="filters.type" label="Asset type" options={TYPES} defaultValue={type} />,
    subscription: (
      <TextField
        name="subscription"
        member="filters.subscription"
        label="Subscription ID"
        hint="A GUID"
        defaultValue={subscription}
      />
    ),
    source: (
      <ChoiceField name="source" member="filters.source" label="Source" options={SOURCES} defaultValue={source} />
    ),
    tag: <TextField name="tag" member="filters.tag" label="Tag" hint="A tag name, or name=value" defaultValue={tag} />,
    owner: <TextField name="owner" member="filters.owner" label="Owner" defaultValue={owner} />,
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

export function filtersOf(form: FormData): Filters {
  return given({
    vault: typed(form, "vault"),
    type: chosen(form, "type", ["", "secret", "key", "certificate"]) || null,
    subscription: typed(form, "subscription"),
    source: chosen(form, "source", ["", "keyVault", "entra", "b2c"]) || null,
    tag: typed(form, "tag"),
    owner: typed(form, "owner"),
    severity: chosen(form, "severity", ["", "low", "medium", "high", "critical"]) || null,
  });
}
