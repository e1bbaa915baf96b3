import { Fragment, type ReactNode } from "react";
import type { Schemas } from "../../api/client.ts";
import { ChoiceField, TextField } from "../../parts/fields.tsx";
import { chosen, given, typed } from "../../parts/form-dialog.tsx";

type Filters = Schemas["AlertRuleFilters"];

const TYPES = { "": "any", secret: "secrets", key: "keys", certificate: "certificates" } as const;
const SOURCES = { "": "any", keyVault: "key vaults", entra: "applications of Entra", b2c: "B2C tenants" } as const;
const SEVERITIES = {
  "": "any",
  low: "low or higher",
  medium: "medium or higher",
  high: "high or higher",
  critical: "critical",
} as const;

/** What a rule or a snooze is about, by the filters that `of` names. Nothing filled in means everything. */
export function FilterFields({ filters = {}, of }: { filters?: Filters; of: readonly (keyof Filters)[] }) {
  const { vault = "", type = "", subscription = "", source = "", tag = "", owner = "", severity = "" } = filters;
  const fields: Record<keyof Filters, ReactNode> = {
    vault: <TextField name="vault" member="filters.vault" label="Only this vault" defaultValue={vault} />,
    type: <ChoiceField name="type" member="filters.type" label="Only this type" options={TYPES} defaultValue={type} />,
    subscription: (
      <TextField
        name="subscription"
        member="filters.subscription"
        label="Only this subscription"
        hint="Its id"
        defaultValue={subscription}
      />
    ),
    source: (
      <ChoiceField name="source" member="filters.source" label="Only from" options={SOURCES} defaultValue={source} />
    ),
    tag: (
      <TextField
        name="tag"
        member="filters.tag"
        label="Only with this tag"
        hint="name or name=value"
        defaultValue={tag}
      />
    ),
    owner: <TextField name="owner" member="filters.owner" label="Only of this owner" defaultValue={owner} />,
    severity: (
      <ChoiceField
        name="severity"
        member="filters.severity"
        label="Only of this severity"
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
