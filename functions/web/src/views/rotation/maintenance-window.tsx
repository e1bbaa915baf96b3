import { makeStyles, Text, tokens } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";
import { CheckField, ChoiceField, FormSection, TextField } from "../../parts/fields.tsx";
import { fieldText } from "../../parts/form-dialog.tsx";
import { LOCAL_ZONE } from "../../parts/time-zone.ts";

type Window = Schemas["MaintenanceWindow"];
type Day = Window["days"][number];

const DAYS: Readonly<Record<Day, string>> = {
  monday: "Monday",
  tuesday: "Tuesday",
  wednesday: "Wednesday",
  thursday: "Thursday",
  friday: "Friday",
  saturday: "Saturday",
  sunday: "Sunday",
};

const useStyles = makeStyles({
  days: { display: "flex", flexWrap: "wrap", columnGap: tokens.spacingHorizontalM },
});

/** The fields of a maintenance window, which `windowOf` reads. Without a day, there is no window. */
export function MaintenanceWindowFields({ window }: { window: Window | null }) {
  const styles = useStyles();
  return (
    <FormSection title="Maintenance window">
      <Text>
        Automatic rotations start, save the new secret and delete the old one only at these times. If no day is
        selected, they do so at any time.
      </Text>
      <div className={styles.days}>
        {Object.entries(DAYS).map(([day, label]) => (
          <CheckField
            key={day}
            name="windowDays"
            value={day}
            label={label}
            member="maintenanceWindow.days"
            defaultChecked={window?.days.some((one) => one === day) ?? false}
          />
        ))}
      </div>
      <TextField
        name="windowFrom"
        label="Opens at"
        type="time"
        member="maintenanceWindow.from"
        defaultValue={window?.from ?? "22:00"}
      />
      <TextField
        name="windowTo"
        label="Closes at"
        hint="At least one hour later. A time that is not after the opening is on the following day."
        type="time"
        member="maintenanceWindow.to"
        defaultValue={window?.to ?? "04:00"}
      />
      <ChoiceField
        name="windowTimeZone"
        label="Time zone"
        member="maintenanceWindow.timeZone"
        options={zonesWith(window?.timeZone)}
        defaultValue={window?.timeZone ?? LOCAL_ZONE}
      />
    </FormSection>
  );
}

/** Returns the maintenance window of a form. Null if no day is selected. */
export function windowOf(form: FormData): Window | null {
  const days = form.getAll("windowDays") as Day[];
  if (days.length === 0) return null;
  return {
    days,
    from: fieldText(form, "windowFrom"),
    to: fieldText(form, "windowTo"),
    timeZone: fieldText(form, "windowTimeZone"),
  };
}

/** Returns a maintenance window as a sentence. */
export function windowText(window: Window | null): string {
  if (window === null) return "Maintenance window: none, rotations run at any time.";
  const { days, from, to, timeZone } = window;
  const closes = to > from ? to : `${to} on the following day`;
  return `Maintenance window: ${days.map((day) => DAYS[day]).join(", ")}, from ${from} to ${closes} (${timeZone}).`;
}

/** Returns all time zones by name, with the name that people use, such as "Europe/Berlin (Central European Time)". */
function zonesWith(saved: string | undefined): Record<string, string> {
  const names = new Set([...Intl.supportedValuesOf("timeZone"), "UTC", LOCAL_ZONE, ...(saved ? [saved] : [])]);
  return Object.fromEntries([...names].sort().map((name) => [name, zoneText(name)]));
}

function zoneText(timeZone: string): string {
  const parts = new Intl.DateTimeFormat("en", { timeZone, timeZoneName: "longGeneric" }).formatToParts();
  return `${timeZone} (${parts.find(({ type }) => type === "timeZoneName")?.value ?? timeZone})`;
}
