/** The fields of forms. Each is read by its name from the form's data. */
import { Checkbox, Field, Input, Select, Textarea } from "@fluentui/react-components";
import { type ComponentProps, createContext, type ReactNode, useContext, useState } from "react";
import type { Problem } from "../api/client.ts";

interface Props {
  name: string;
  label: string;
  hint?: string | undefined;
  required?: boolean | undefined;
  /** The member of the request's body that it becomes, such as "escalation.afterDays"; its name unless said. */
  member?: string | undefined;
}

interface InputProps extends Pick<ComponentProps<typeof Input>, "type" | "min" | "max" | "autoComplete"> {
  defaultValue?: string;
  /** Is told whether there is anything in it. */
  typedInto?(isAnything: boolean): void;
}

/** What the API found wrong with what the form sent. */
export const ErrorsContext = createContext<NonNullable<Problem["errors"]>>([]);

/** What is wrong with a member of the body, in the API's words. */
function useError(member: string): string {
  const own = `body.${member}`;
  return useContext(ErrorsContext)
    .filter(({ path }) => path === own || path.startsWith(`${own}.`))
    .map(({ path, message }) => (path === own ? message : `${path.slice(own.length + 1)}: ${message}`))
    .join(" ");
}

/**
 * What a field holds. Where nothing was typed it follows what somebody else sets while the form is open; otherwise what was
 * typed stays, and `other` is theirs.
 */
function useHeld<T>(given: T): { value: T; set(value: T): void; other: T | undefined } {
  const [typed, type] = useState<{ value: T; over: T }>();
  const isOther = typed !== undefined && typed.over !== given && typed.value !== given;
  return {
    value: typed ? typed.value : given,
    set: (value) => type({ value, over: typed ? typed.over : given }),
    other: isOther ? given : undefined,
  };
}

/** A label, a hint, and what is wrong with what was typed. */
function Frame({
  of: { name, label, hint, required = false, member = name },
  other,
  children,
}: {
  of: Omit<Props, "label"> & { label?: string };
  /** What somebody else has set meanwhile. */
  other?: string | undefined;
  children: ReactNode;
}) {
  const error = useError(member);
  const meanwhile = other === undefined ? "" : `Somebody else has set this meanwhile: ${other || "nothing"}`;
  return (
    <Field
      {...(label !== undefined && { label })}
      hint={hint}
      required={required}
      validationState={error ? "error" : meanwhile ? "warning" : "none"}
      validationMessage={error || meanwhile || null}
    >
      {children}
    </Field>
  );
}

/** What a control of text takes; `other` is what somebody else has set meanwhile. */
function useText(given = "", typedInto?: InputProps["typedInto"]) {
  const { value, set, other } = useHeld(given);
  const onChange = (_: unknown, data: { value: string }) => {
    set(data.value);
    typedInto?.(data.value !== "");
  };
  return { other, control: { value, onChange } };
}

export function TextField({ label, hint, required, member, defaultValue, typedInto, ...input }: Props & InputProps) {
  const { other, control } = useText(defaultValue, typedInto);
  return (
    <Frame of={{ name: input.name, label, hint, required, member }} other={other}>
      <Input autoComplete="off" {...input} {...control} />
    </Frame>
  );
}

/** @param props.secret - It goes in and never comes out: shown as dots, and empty when the form is opened. */
export const SecretField = (props: Props & Pick<InputProps, "typedInto">) => (
  <TextField {...props} type="password" autoComplete="new-password" />
);

export const NumberField = (props: Props & InputProps) => <TextField {...props} type="number" />;

/**
 * The day on which a secret of the form ends.
 *
 * @param props.end - The end of the one that is set.
 * @param props.isAnother - Whether another secret was typed: the end of one is not that of the next.
 */
export function EndField({ end, isAnother, ...props }: Props & { end: string | null | undefined; isAnother: boolean }) {
  const { other, control } = useText(isAnother ? "" : (end?.slice(0, 10) ?? ""));
  return (
    <Frame of={props} other={isAnother ? undefined : other}>
      <Input name={props.name} type="date" {...control} />
    </Frame>
  );
}

export function LongField({
  label,
  hint,
  required,
  member,
  defaultValue,
  typedInto,
  ...area
}: Props & Pick<InputProps, "defaultValue" | "typedInto"> & { rows?: number }) {
  const { other, control } = useText(defaultValue, typedInto);
  return (
    <Frame of={{ name: area.name, label, hint, required, member }} other={other}>
      <Textarea resize="vertical" {...area} {...control} />
    </Frame>
  );
}

/** @param props.options - The values, or each value with its words. */
export function ChoiceField<T extends string>({
  options,
  defaultValue,
  value,
  choose,
  ...props
}: Props & {
  options: readonly T[] | Readonly<Partial<Record<T, string>>>;
  defaultValue?: NoInfer<T>;
  value?: NoInfer<T>;
  choose?(value: NoInfer<T>): void;
}) {
  const pairs = Array.isArray(options)
    ? options.map((one: T) => [one, one] as const)
    : Object.entries<string>(options as Record<T, string>);
  const { value: held, set, other } = useHeld<string>(defaultValue ?? pairs[0]?.[0] ?? "");
  const words = pairs.find(([one]) => one === other)?.[1];
  return (
    <Frame of={props} other={words}>
      <Select
        name={props.name}
        value={value ?? held}
        onChange={(_, data) => {
          set(data.value);
          choose?.(data.value as T);
        }}
      >
        {pairs.map(([one, words]) => (
          <option key={one} value={one}>
            {words}
          </option>
        ))}
      </Select>
    </Frame>
  );
}

/** @param props.value - What the form has for it where it is checked, of several with one name. */
export function CheckField({
  label,
  hint,
  member,
  defaultChecked = false,
  ...box
}: Props & { value?: string; defaultChecked?: boolean }) {
  const { value, set, other } = useHeld(defaultChecked);
  return (
    <Frame of={{ name: box.name, hint, member }} other={other === undefined ? undefined : other ? "yes" : "no"}>
      <Checkbox {...box} label={label} checked={value} onChange={(_, data) => set(data.checked === true)} />
    </Frame>
  );
}
