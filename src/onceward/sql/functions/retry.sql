-- The retry policy travels with the job, so that a worker in any language applies the same one.
--   {"waits": [5, 30, 300]}                                        seconds; the last one repeats
--   {"base": 5, "factor": 3, "cap": 3600, "jitter": true}          exponential; jitter draws from 0 to the wait
--   {"max_snoozes": 1000}                                          beside either form
create or replace function onceward.retry_wait(p_retry jsonb, p_attempt integer)
  returns interval
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_base    double precision := coalesce((p_retry ->> 'base')::double precision, 5);
  v_factor  double precision := coalesce((p_retry ->> 'factor')::double precision, 3);
  v_cap     double precision := coalesce((p_retry ->> 'cap')::double precision, 3600);
  v_count   integer;
  v_seconds double precision;
begin
  if p_retry ? 'waits' then
    v_count := jsonb_array_length(p_retry -> 'waits');
    v_seconds := (p_retry -> 'waits' ->> (least(greatest(p_attempt, 1), v_count) - 1))::double precision;
    if coalesce((p_retry ->> 'jitter')::boolean, false) then
      v_seconds := v_seconds * random();
    end if;
    return make_interval(secs => v_seconds);
  end if;

  -- In logarithms first: factor ^ attempt overflows long before the attempts run out.
  if v_base <= 0 or v_cap <= 0 then
    v_seconds := 0;
  elsif ln(v_base) + (greatest(p_attempt, 1) - 1) * ln(greatest(v_factor, 1)) >= ln(v_cap) then
    v_seconds := v_cap;
  else
    v_seconds := v_base * power(greatest(v_factor, 1), greatest(p_attempt, 1) - 1);
  end if;
  if coalesce((p_retry ->> 'jitter')::boolean, true) then
    v_seconds := v_seconds * random();
  end if;
  return make_interval(secs => v_seconds);
end;
$$;
comment on function onceward.retry_wait(jsonb, integer) is
  'How long to wait after this failed attempt, by the job''s retry policy.';

-- Refuse a policy that a worker could not apply.
create or replace function onceward.check_retry(p_retry jsonb)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_name  text;
  v_value jsonb;
begin
  if p_retry is null then
    return;
  end if;
  if jsonb_typeof(p_retry) <> 'object' then
    perform onceward.bad_argument('retry', p_retry::text, 'must be a JSON object');
  end if;
  for v_name, v_value in select k, v from jsonb_each(p_retry) as e (k, v)
  loop
    if v_name = 'waits' then
      if jsonb_typeof(v_value) <> 'array' or jsonb_array_length(v_value) not between 1 and 100 then
        perform onceward.bad_argument('retry.waits', v_value::text, 'must be a list of 1 to 100 numbers of seconds');
      end if;
      if exists (select from jsonb_array_elements(v_value) as w (s)
                  where jsonb_typeof(w.s) <> 'number' or (w.s #>> '{}')::numeric not between 0 and 31536000) then
        perform onceward.bad_argument('retry.waits', v_value::text, 'each wait must be between 0 seconds and a year');
      end if;
    elsif v_name in ('base', 'cap') then
      if jsonb_typeof(v_value) <> 'number' or (v_value #>> '{}')::numeric not between 0 and 31536000 then
        perform onceward.bad_argument('retry.' || v_name, v_value::text, 'must be between 0 seconds and a year');
      end if;
    elsif v_name = 'factor' then
      if jsonb_typeof(v_value) <> 'number' or (v_value #>> '{}')::numeric not between 1 and 100 then
        perform onceward.bad_argument('retry.factor', v_value::text, 'must be between 1 and 100');
      end if;
    elsif v_name = 'jitter' then
      if jsonb_typeof(v_value) <> 'boolean' then
        perform onceward.bad_argument('retry.jitter', v_value::text, 'must be true or false');
      end if;
    elsif v_name = 'max_snoozes' then
      if jsonb_typeof(v_value) <> 'number' or (v_value #>> '{}')::numeric not between 0 and 1000000
         or (v_value #>> '{}')::numeric % 1 <> 0 then
        perform onceward.bad_argument('retry.max_snoozes', v_value::text, 'must be a whole number from 0 to 1000000');
      end if;
    else
      perform onceward.bad_argument('retry.' || v_name, v_value::text,
        'is not known; use waits, or base, factor, cap, jitter; and max_snoozes');
    end if;
  end loop;
end;
$$;
