import { useState } from "react";
import type { Schemas } from "../../api/client.ts";
import {
  CheckField,
  ChoiceField,
  FormSection,
  ListField,
  NumberField,
  SecretField,
  TextField,
} from "../../parts/fields.tsx";
import { fieldChoice, fieldEntries, fieldNumbers, fieldText, withoutEmpty } from "../../parts/form-dialog.tsx";
import { METHODS } from "../../parts/notification-texts.ts";
import { FilterFields, filtersOf } from "./filter-fields.tsx";
import { canEscalate, filtersFor, hasThresholds, TYPES } from "./rule-texts.ts";

type Rule = Schemas["AlertRule"];
type NewRule = Schemas["NewAlertRule"];
type Method = Rule["deliveryMethod"];

/** Frequencies of notifications. The API has a mode (immediate or digest) and the frequency of digests. */
const FREQUENCIES = { immediate: "Immediately", daily: "Daily digest", weekly: "Weekly digest" } as const;
/** Targets of an escalation, which sends alerts again if they are not acknowledged in time. */
const ESCALATIONS = { none: "None", recipients: "Email addresses", rule: "Recipients of another rule" } as const;
type EscalationTarget = keyof typeof ESCALATIONS;

/**
 * The fields of a rule, in the forms that create and edit one. The event decides which filters are shown and whether there are
 * thresholds and an escalation.
 *
 * @param props.rule - The rule to edit. Undefined for a new rule.
 * @param props.others - The other rules, to whose recipients alerts can be escalated.
 */
export function RuleFields({ rule, others }: { rule?: Rule; others: Rule[] }) {
  // Undefined until the user selects something. Until then, the selection follows the saved rule.
  const [selectedType, setType] = useState<Rule["alertType"]>();
  const [selectedMethod, setMethod] = useState<Method>();
  const type = selectedType ?? rule?.alertType ?? "expiration";
  const method = selectedMethod ?? rule?.deliveryMethod ?? "email";
  return (
    <>
      <TextField
        name="name"
        label="Name"
        hint="Example: Production secrets expire soon"
        required
        defaultValue={rule?.name ?? ""}
      />
      <ChoiceField
        name="alertType"
        label="Event"
        hint="The event that the rule notifies about."
        options={TYPES}
        defaultValue={rule?.alertType ?? "expiration"}
        choose={setType}
      />
      {hasThresholds(type) && (
        <TextField
          name="thresholds"
          label="Days before expiry"
          hint="Example: 30, 7, 1. The rule then notifies three times about each asset: 30 days, 7 days and 1 day before it expires."
          required
          defaultValue={rule && rule.thresholds.length > 0 ? rule.thresholds.join(", ") : "30, 7, 1"}
        />
      )}
      <FormSection title="Notification">
        <ChoiceField
          name="deliveryMethod"
          label="Channel"
          options={METHODS}
          defaultValue={rule?.deliveryMethod ?? "email"}
          choose={setMethod}
        />
        <Address method={method} {...(rule && { rule })} />
        <ChoiceField name="mode" label="Frequency" options={FREQUENCIES} defaultValue={modeOf(rule)} />
        <CheckField
          name="tellRecovery"
          label="Also notify when the problem is resolved"
          defaultChecked={rule?.tellRecovery ?? true}
        />
      </FormSection>
      {filtersFor(type).length > 0 && (
        <FormSection title="Filters (optional, empty fields match everything)">
          <FilterFields {...(rule && { filters: rule.filters })} of={filtersFor(type)} />
        </FormSection>
      )}
      {canEscalate(type) && <Escalation others={others} {...(rule && { rule })} />}
    </>
  );
}

/** The fields of the escalation. Which of them are shown depends on the selected target. */
function Escalation({ rule, others }: { rule?: Rule; others: Rule[] }) {
  const escalation = rule?.escalation ?? null;
  const [selectedTarget, setTarget] = useState<EscalationTarget>();
  const savedTarget = escalation === null ? "none" : escalation.ruleId === null ? "recipients" : "rule";
  const target = selectedTarget ?? savedTarget;
  return (
    <FormSection title="Escalation (optional)">
      <ChoiceField
        name="escalates"
        label="Escalate to"
        hint="Recipients of alerts that are not acknowledged in time."
        options={ESCALATIONS}
        defaultValue={savedTarget}
        choose={setTarget}
      />
      {target !== "none" && (
        <NumberField
          name="afterDays"
          member="escalation.afterDays"
          label="Escalate after (days)"
          hint="Days without acknowledgment. Example: 3"
          required
          min={1}
          max={90}
          defaultValue={String(escalation?.afterDays ?? 3)}
        />
      )}
      {target === "recipients" && (
        <ListField
          name="escalationRecipients"
          member="escalation.recipients"
          label="Escalation email addresses"
          hint="Example: on-call@contoso.com"
          noun="address"
          required
          defaultEntries={escalation?.recipients ?? []}
        />
      )}
      {target === "rule" && (
        <ChoiceField
          name="escalationRule"
          member="escalation.ruleId"
          label="Rule whose recipients are notified"
          options={Object.fromEntries(others.map(({ id, name }) => [id, name]))}
          defaultValue={escalation?.ruleId ?? ""}
        />
      )}
    </FormSection>
  );
}

/** Returns the frequency of a rule, for its field. */
const modeOf = (rule?: Rule): keyof typeof FREQUENCIES =>
  rule?.deliveryMode === "digest" ? rule.digestFrequency : "immediate";

const STORED_HINT = "Stored in the service's own key vault and never shown again.";

/**
 * The recipient fields of a channel. An empty secret field keeps the stored value. `isSet`: the saved rule has the same channel
 * and an address, so a value is stored.
 */
function Address({ method, rule }: { method: Method; rule?: Rule }) {
  const isSet = rule !== undefined && rule.deliveryMethod === method && rule.webhookHost !== null;
  const unchanged = isSet ? ` Leave empty to keep the current value (${rule.webhookHost}).` : "";
  if (method === "email")
    return (
      <ListField
        name="recipients"
        label="Email addresses"
        hint="Example: on-call@contoso.com. If the owner of an asset is listed under Owners, the owner gets the alert instead."
        noun="address"
        required
        defaultEntries={rule?.recipients ?? []}
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
            ? "Leave empty for the US region. Example for the EU region: https://events.eu.pagerduty.com"
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
            hint="Enter a username and password, or an OAuth client ID and client secret. Leave all four fields empty to keep the stored credentials. If you change the URL, enter them again."
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
  const alertType = fieldChoice(form, "alertType", Object.keys(TYPES) as Rule["alertType"][]);
  const deliveryMethod = fieldChoice(form, "deliveryMethod", Object.keys(METHODS) as Method[]);
  // The field combines two members of the API: the mode, and the frequency of digests.
  const mode = fieldChoice(form, "mode", ["immediate", "daily", "weekly"]);
  // Fields of other channels are not in the form, so their texts are empty and left out.
  const credentials = withoutEmpty(
    Object.fromEntries(
      ["routingKey", "username", "password", "clientId", "clientSecret"].map((name) => [name, fieldText(form, name)]),
    ),
  );
  return {
    name: fieldText(form, "name"),
    alertType,
    ...(hasThresholds(alertType) && { thresholds: fieldNumbers(form, "thresholds", "days") }),
    filters: filtersOf(form),
    deliveryMethod,
    deliveryMode: mode === "immediate" ? mode : "digest",
    ...(mode !== "immediate" && { digestFrequency: mode }),
    ...(deliveryMethod === "email" && { recipients: fieldEntries(form, "recipients") }),
    ...withoutEmpty({ webhookUrl: fieldText(form, "webhookUrl") }),
    ...(Object.keys(credentials).length > 0 && { credentials }),
    tellRecovery: form.has("tellRecovery"),
    escalation: escalationOf(form),
  };
}

/** Returns the escalation from the form data. Null if the user selected none, or if the event has no such field. */
function escalationOf(form: FormData): Schemas["NewAlertEscalation"] | null {
  const to = fieldChoice(form, "escalates", ["none", "recipients", "rule"]);
  if (to === "none") return null;
  const afterDays = Number(fieldText(form, "afterDays"));
  if (to === "rule") return { afterDays, ruleId: fieldText(form, "escalationRule") };
  return { afterDays, recipients: fieldEntries(form, "escalationRecipients") };
}
