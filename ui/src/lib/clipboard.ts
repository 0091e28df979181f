/** Copies a text. Pages that did not come by HTTPS or from this machine have no clipboard of their own: then by a selection. */
export async function copyText(text: string): Promise<void> {
  if (window.isSecureContext && 'clipboard' in navigator) return navigator.clipboard.writeText(text);
  const field = document.createElement('textarea');
  field.value = text;
  field.readOnly = true;
  field.className = 'offscreen';
  const focused = document.activeElement;
  document.body.append(field);
  field.select();
  const isCopied = document.execCommand('copy');
  field.remove();
  if (focused instanceof HTMLElement) focused.focus();
  if (!isCopied) throw new Error('the browser does not allow copying');
}
