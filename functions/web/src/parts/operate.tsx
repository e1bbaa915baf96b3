import type { ReactNode } from "react";
import { type Operation, useMay } from "../api/access.ts";
import { type Call, callOf } from "../api/calls.ts";
import { FormDialog, type FormDialogProps } from "./form-dialog.tsx";

interface Props<O extends Operation, P extends Operation>
  extends Omit<FormDialogProps, "submit" | "operation" | "preview"> {
  operation: O;
  /** Calls the operation. A returned element or string is shown in the dialog, such as the result of a test. */
  submit(form: FormData, call: Call<O>): Promise<unknown>;
  /** Loads a preview of the change, with the same operation unless `operation` names another. */
  preview?: {
    operation?: P;
    action: string;
    /** Whether the preview is required before the submit button appears. */
    isRequired?: boolean;
    load(form: FormData, call: Call<P>): Promise<ReactNode>;
  };
}

/**
 * A button that opens the form of an API operation, used in all views. Not rendered if the user's role or the license does not
 * allow the operation.
 */
export function Operate<O extends Operation, P extends Operation = O>(props: Props<O, P>) {
  const { operation, submit, preview, ...dialog } = props;
  const may = useMay();
  if (!may(operation)) return null;
  const call = callOf(operation);
  return (
    <FormDialog {...dialog} operation={operation} submit={(form) => submit(form, call)} {...previewOf(props, may)} />
  );
}

/** Returns the `preview` prop of the form. Without permission for the operation of the preview, the form has none. */
function previewOf<O extends Operation, P extends Operation>(
  { operation, preview }: Props<O, P>,
  may: (operation: Operation) => boolean,
): Pick<FormDialogProps, "preview"> {
  const previewOperation = (preview?.operation ?? operation) as P;
  if (!preview || !may(previewOperation)) return {};
  const call = callOf(previewOperation);
  return { preview: { ...preview, load: (form) => preview.load(form, call) } };
}
