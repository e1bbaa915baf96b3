import { Divider } from "@fluentui/react-components";
import { useState } from "react";
import type { Schemas } from "../../api/client.ts";
import { CheckField, ChoiceField, LongField, NumberField, SecretField, TextField } from "../../parts/fields.tsx";
import { chosen, given, typed, typedList, typedNumbers } from "../../parts/form-dialog.tsx";
import { METHODS } from "../../parts/notification-texts.ts";
import { FilterFields, filtersOf } from "./filter-fields.tsx";
import { canEscalate, filtersFor, hasThresholds, TYPES } from "./rule-texts.ts";

type Rule = Schemas["AlertRule"];
type NewRule = Schemas["NewAlertRule"];
type Method = Rule["deliveryMethod"];

const WHEN = { immediate: "Immediately", daily: "Daily digest", weekly: "Weekly digest" } as const;
const ESCALATIONS = { none: "None", recipients: "Email addresses", rule: "Recipients of another rule" } as const;
type EscalatesTo = keyof typeof ESCALATIONS;

/** @param props.rule - The rule to edit. Undefined for a new rule. */
export function RuleFields({ rule, others }: { rule?: Rule; others: Rule[] }) {
  // Untouched selections follow the server.
  const [chosenType, setType] = useState<Rule["alertType"]>();
  const [chosenMethod, setMethod] = useState<Method>();
  const type = chosenType ?? rule?.alertType ?? "expiration";
  const method = chosenMethod ?? rule?.deliveryMethod ?? "email";
  return (
    <>
      <TextField name="name" label="Name" required defaultValue={rule?.name ?? ""} />
      <ChoiceField
        name="alertType"
        label="Trigger"
        options={TYPES}
        defaultValue={rule?.alertType ?? "expiration"}
        choose={setType}
      />
      {hasThresholds(type) && (
        <TextField
          name="thresholds"
          label="Days before expiry"
          hint="Example: 30, 7, 1. Each asset causes one notification per threshold."
          required
          defaultValue={rule && rule.thresholds.length > 0 ? rule.thresholds.join(", ") : "30, 7, 1"}
        />
      )}
      <FilterFields {...(rule && { filters: rule.filters })} of={filtersFor(type)} />
      <Divider>Notification</Divider>
      <ChoiceField
        name="deliveryMethod"
        label="Channel"
        options={METHODS}
        defaultValue={rule?.deliveryMethod ?? "email"}
        choose={setMethod}
      />
      <Address method={method} {...(rule && { rule })} />
      <ChoiceField name="mode" label="Frequency" options={WHEN} defaultValue={modeOf(rule)} />
      <CheckField name="tellRecovery" label="Also notify when resolved" defaultChecked={rule?.tellRecovery ?? true} />
      {canEscalate(type) && <Escalation others={others} {...(rule && { rule })} />}
    </>
  );
}

function Escalation({ rule, others }: { rule?: Rule; others: Rule[] }) {
  const escalation = rule?.escalation ?? null;
  const [chosenStep, escalateTo] = useState<EscalatesTo>();
  const saved = escalation === null ? "none" : escalation.ruleId === null ? "recipients" : "rule";
  const escalates = chosenStep ?? saved;
  return (
    <>
      <Divider>Escalation of alerts without acknowledgment</Divider>
      <ChoiceField
        name="escalates"
        label="Escalate to"
        options={ESCALATIONS}
        defaultValue={saved}
        choose={escalateTo}
      />
      {escalates !== "none" && (
        <NumberField
          name="afterDays"
          member="escalation.afterDays"
          label="After (days)"
          required
          min={1}
          max={90}
          defaultValue={String(escalation?.afterDays ?? 3)}
        />
      )}
      {escalates === "recipients" && (
        <LongField
          name="escalationRecipients"
          member="escalation.recipients"
          label="Email addresses"
          required
          defaultValue={escalation?.recipients.join("\n") ?? ""}
        />
      )}
      {escalates === "rule" && (
        <ChoiceField
          name="escalationRule"
          member="escalation.ruleId"
          label="Rule"
          options={Object.fromEntries(others.map(({ id, name }) => [id, name]))}
          defaultValue={escalation?.ruleId ?? ""}
        />
      )}
    </>
  );
}

const modeOf = (rule?: Rule): keyof typeof WHEN =>
  rule?.deliveryMode === "digest" ? rule.digestFrequency : "immediate";

const STORED_HINT = "Stored in the service's own key vault. Never shown again.";

/** The recipient fields of a channel. An empty secret field keeps the stored value. */
function Address({ method, rule }: { method: Method; rule?: Rule }) {
  const isSet = rule !== undefined && rule.deliveryMethod === method && rule.webhookHost !== null;
  const unchanged = isSet ? ` Leave empty to keep the current value (${rule.webhookHost}).` : "";
  if (method === "email")
    return (
      <LongField
        name="recipients"
        label="Email addresses"
        hint="One per line. Listed owners get the alerts for their assets; these recipients get the rest."
        required
        defaultValue={rule?.recipients.join("\n") ?? ""}
      />
    );
  return (
    <>
      <TextField
        name="webhookUrl"
        label={method === "serviceNow" ? "Instance URL" : "URL"}
        type="url"
        hint={
          method === "pagerDuty"
            ? "Only needed outside the US region, such as https://events.eu.pagerduty.com"
            : STORED_HINT + unchanged
        }
        required={method !== "pagerDuty" && !isSet}
      />
      {method === "pagerDuty" && (
        <SecretField
          name="routingKey"
          member="credentials.routingKey"
          label="Integration key (Events API v2)"
          hint={STORED_HINT}
          required={!isSet}
        />
      )}
      {method === "serviceNow" && (
        <>
          <TextField
            name="username"
            member="credentials.username"
            label="Username"
            hint="Enter username and password, or OAuth client ID and secret. Leave all empty to keep the stored credentials. Enter them again if you change the URL."
          />
          <SecretField name="password" member="credentials.password" label="Password" hint={STORED_HINT} />
          <TextField name="clientId" member="credentials.clientId" label="OAuth client ID" />
          <SecretField
            name="clientSecret"
            member="credentials.clientSecret"
            label="OAuth client secret"
            hint={STORED_HINT}
          />
        </>
      )}
    </>
  );
}

/** Returns the rule from the form data, for both a new rule and a change. @throws {Problem} at an invalid threshold. */
export function ruleOf(form: FormData): NewRule & { deliveryMethod: Method } {
  const alertType = chosen(form, "alertType", Object.keys(TYPES) as Rule["alertType"][]);
  const deliveryMethod = chosen(form, "deliveryMethod", Object.keys(METHODS) as Method[]);
  const mode = chosen(form, "mode", ["immediate", "daily", "weekly"]);
  const credentials = given(
    Object.fromEntries(
      ["routingKey", "username", "password", "clientId", "clientSecret"].map((name) => [name, typed(form, name)]),
    ),
  );
  return {
    name: typed(form, "name"),
    alertType,
    ...(hasThresholds(alertType) && { thresholds: typedNumbers(form, "thresholds", "days") }),
    filters: filtersOf(form),
    deliveryMethod,
    deliveryMode: mode === "immediate" ? mode : "digest",
    ...(mode !== "immediate" && { digestFrequency: mode }),
    ...(deliveryMethod === "email" && { recipients: typedList(form, "recipients") }),
    ...given({ webhookUrl: typed(form, "webhookUrl") }),
    ...(Object.keys(credentials).length > 0 && { credentials }),
    tellRecovery: form.has("tellRecovery"),
    escalation: escalationOf(form),
  };
}

function escalationOf(form: FormData): Schemas["NewAlertEscalation"] | null {
  const to = chosen(form, "escalates", ["none", "recipients", "rule"]);
  if (to === "none") return null;
  const afterDays = Number(typed(form, "afterDays"));
  if (to === "rule") return { afterDays, ruleId: typed(form, "escalationRule") };
  return { afterDays, recipients: typedList(form, "escalationRecipients") };
}
